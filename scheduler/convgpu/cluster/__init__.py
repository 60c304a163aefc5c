"""Jobs of a cluster on Slurm: requests, shares of cards, scripts, and what a node knows of a job. Pure."""
