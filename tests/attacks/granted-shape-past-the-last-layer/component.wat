;; Wants the shape of a matrix in a layer that the model does not have.
(func $step (param i32) (result i32)
  (call $weights/shape (i32.const 7) (i32.const -1) (i32.const 64))
  (call $pass-on))
