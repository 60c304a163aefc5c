"""What is said of the rules of a site on both sides of the wire."""
