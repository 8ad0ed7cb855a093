"""The document of the operations, their groups and examples, and the page where one may try them."""
