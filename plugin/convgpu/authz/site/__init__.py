"""The rules of a site, and the file that holds them."""
