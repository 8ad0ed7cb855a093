"""Models over HTTP: a wire for each dialect, and the request, queue and errors that they share."""
