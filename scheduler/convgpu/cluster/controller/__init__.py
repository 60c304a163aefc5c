"""The controller of a Slurm cluster: which priority each job has, what it is asked to ask for, and why. Pure.

It starts nothing, places nothing and ends nothing; Slurm does, by the priorities. docs/cluster.md, The controller.
"""
