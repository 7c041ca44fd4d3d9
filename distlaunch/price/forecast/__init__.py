"""`distlaunch forecast`: time and money of clusters, from the steps of earlier runs."""
