"""Who holds how much of which device, and whether a grant is safe."""
