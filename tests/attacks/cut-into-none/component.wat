;; Cuts a tensor into zero parts: dividing by their number would divide by zero.
(import "tunebox:method/tensor@0.2.0" "ones" (func $ones (param i32 i32 i32 i32)))
(import "tunebox:method/tensor@0.2.0" "[method]tensor.chunk" (func $chunk (param i32 i32 i32 i32)))
(data (i32.const 256) "\01\00\00\00")
(func $step (param i32) (result i32)
  (call $ones (i32.const 256) (i32.const 1) (i32.const 5) (i32.const 64))
  (call $chunk (call $handle) (i32.const 0) (i32.const 0) (i32.const 64))
  (call $pass-on))
