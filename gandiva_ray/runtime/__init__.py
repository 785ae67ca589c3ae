"""The world that carries decisions out: Ray actors, devices, processes. Ray is imported here and nowhere else."""
