"""The same work on several clusters of this machine, to see whether distribution pays.

``variants`` what to compare; ``rounds`` runs them in turn; ``figures`` medians and ratios;
``verdict`` one sentence; ``report`` the table, JSON, HTML and PNG.
"""
