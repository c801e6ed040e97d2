"""Frames over one open TCP port: the server's hub, and the clients' spokes.

===============  ========================================================================================
`address.py`     HOST:PORT, and its sockets
`transport.py`   frames over one connection per client: what both ends share
`hub.py`         the server's end; `relay.py`, its places for clients
`spoke.py`       a client's end; `route.py`, one attempt to connect; `proxy.py`, through an HTTP proxy
`door.py`        the open port and its queues; `admission.py`, the first two messages
`forwarded.py`   the header in which a load balancer states the client's address
`stream.py`      one connection; `delivery.py`, how another continues where it was cut
`aggregator.py`  between some clients and the server; `tree.py`, its frames to and from the server
===============  ========================================================================================
"""
