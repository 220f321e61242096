;; Uses a handle that it was never given.
(func $step (param i32) (result i32)
  (call $tensor/tensor.negate (i32.const 77) (i32.const 64))
  (call $pass-on))
