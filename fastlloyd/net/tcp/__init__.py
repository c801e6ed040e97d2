"""Frames over one open TCP port: the server's door, and the spoke that joins it.

===============  ======================================================================================================
`address.py`     HOST:PORT, and the sockets that it stands for
`transport.py`   frames over one connection per client: what both ends share
`hub.py`         the server's end; `relay.py`, its places for clients
`spoke.py`       a client's end; `way_in.py`, one attempt to join; `proxy.py`, through an HTTP proxy
`door.py`        the open port, and the queues in front of it; `admission.py`, the first two messages
`forwarded.py`   whose connection a load balancer passes on
`stream.py`      one connection; `delivery.py`, how another goes on where it was cut
`aggregator.py`  between some clients and the server; `tree.py`, its messages to and from the server
===============  ======================================================================================================
"""
