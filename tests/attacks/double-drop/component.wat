;; Drops a tensor twice.
(data (i32.const 256) "\01\00\00\00")
(func $step (param i32) (result i32)
  (call $tensor/ones (i32.const 256) (i32.const 1) (i32.const 5) (i32.const 64))
  (call $tensor/tensor.drop (call $handle))
  (call $tensor/tensor.drop (call $handle))
  (call $done))
