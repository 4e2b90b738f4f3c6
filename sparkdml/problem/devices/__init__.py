"""What a worker does with dense blocks on an array library's device, such as a GPU."""
