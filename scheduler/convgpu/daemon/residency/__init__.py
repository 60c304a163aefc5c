"""Memory that leaves: the porter's process, carriers to it, and what elastic processes say."""
