"""The embedded decode loop: Ling-3.0-flash's layers, speculation and a host scheduler."""
