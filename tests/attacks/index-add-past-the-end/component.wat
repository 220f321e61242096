;; Writes past the last number of a tensor.
(data (i32.const 256) "\01\00\00\00\00\00\00\80")
(func $step (param i32) (result i32)
  (local $tensor i32)
  (call $tensor/ones (i32.const 256) (i32.const 1) (i32.const 5) (i32.const 64))
  (local.set $tensor (call $handle))
  (call $tensor/from-indices (i32.const 260) (i32.const 1) (i32.const 256) (i32.const 1) (i32.const 64))
  (call $tensor/tensor.index-add (local.get $tensor) (i32.const 0) (call $handle) (local.get $tensor) (i32.const 64))
  (call $pass-on))
