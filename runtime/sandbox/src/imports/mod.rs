//! The contract, kept: one file for each interface of `wit/`, functions in the order of WIT.
//!
//! Each function names itself to the meters, looks its operands up, checks, and calls the room
//! that does the work. Nothing here may panic, loop without bound, or trust a number of the method.

mod data;
mod hidden;
mod learn;
mod model;
mod patch;
mod reward;
mod run;
mod sample;
mod tensor;
mod text;
mod types;
mod weights;
