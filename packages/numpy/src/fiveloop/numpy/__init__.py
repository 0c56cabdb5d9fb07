"""Array functions under the names of NumPy and the Array API."""
