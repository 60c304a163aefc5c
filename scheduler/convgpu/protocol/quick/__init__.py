"""Parts of the standard library without its imports, for programs that are waited for (decisions 143 and 150)."""
