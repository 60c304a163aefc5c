"""The rules of the site, and the file that they come from."""
