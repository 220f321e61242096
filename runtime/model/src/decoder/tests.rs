//! Compares the decoder with a slow reference (`twin`) in `f64`, made of plain tensor operations under autograd, for
//! every family feature and every kind of adapter.

mod captured;
mod captured_passes;
mod devices;
mod divergence;
mod edits;
mod golden;
mod gradients;
mod passes;
mod patches;
mod quantized;
mod ranks;
mod sharing;
mod slices;
mod twin;
