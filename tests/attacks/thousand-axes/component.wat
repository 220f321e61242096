;; Asks for a tensor with a thousand axes.
(func $step (param i32) (result i32)
  (call $tensor/ones (i32.const 512) (i32.const 1000) (i32.const 5) (i32.const 64))
  (call $pass-on))
