"""The proxy through which programs of tasks reach the network: it checks their connections as tools check their own."""
