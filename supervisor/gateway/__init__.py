"""The daemon's WebSocket: JSON-RPC 2.0 on the loopback interface, each connection one more viewer of the front door."""
