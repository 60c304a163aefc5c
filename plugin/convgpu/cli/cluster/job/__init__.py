"""`convgpu job`: in a script of `sbatch` or `srun`, one container with all cards that the job has on this node."""
