"""Map functions over row blocks and merge the results: on threads, executors or a cluster."""
