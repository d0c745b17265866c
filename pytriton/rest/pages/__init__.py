"""The pages for browsers: what they show, how it is measured, and the commands of operators.

===============  =====================================================================================
``routes.py``    the routes: the page and its files, the data, the stream of samples, the commands
``live.py``      takes the samples, and sends them to the pages that are open
``sampler.py``   one sample: from the server's statistics and metrics, and the app's own counters
``history.py``   samples of the last 15 minutes and 24 hours, in memory of a fixed size
``processes.py`` memory and CPU time of processes
``static/``      HTML, CSS and ES modules
===============  =====================================================================================
"""
