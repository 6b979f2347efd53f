"""Random programs that must do on the device, in every eager mode, what they do on the CPU."""
