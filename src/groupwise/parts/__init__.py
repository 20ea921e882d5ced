"""What a part is: slots, stateful parts, the registry, and checks of parts that come from outside."""
