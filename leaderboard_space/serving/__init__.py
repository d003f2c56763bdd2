"""What stands between HTTP and the pages: their endpoint, the limit of a request, what a shared link shows."""
