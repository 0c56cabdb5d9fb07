"""From jaxprs to compiled programs."""
