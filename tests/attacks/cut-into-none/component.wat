;; Cuts a tensor into zero parts: dividing by their number would divide by zero.
(data (i32.const 256) "\01\00\00\00")
(func $step (param i32) (result i32)
  (call $tensor/ones (i32.const 256) (i32.const 1) (i32.const 5) (i32.const 64))
  (call $tensor/tensor.chunk (call $handle) (i32.const 0) (i32.const 0) (i32.const 64))
  (call $pass-on))
