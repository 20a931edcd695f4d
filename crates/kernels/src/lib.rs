//! Fast loops over slices and geometry structs, chosen by instruction set at run time.
