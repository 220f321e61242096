;; Repeats one number to two billion, which costs nothing, and then asks for something new of each.
(data (i32.const 256) "\01\00\00\00\ff\ff\ff\7f")
(func $step (param i32) (result i32)
  (call $tensor/ones (i32.const 256) (i32.const 1) (i32.const 5) (i32.const 64))
  (call $tensor/tensor.expand (call $handle) (i32.const 260) (i32.const 1) (i32.const 64))
  (call $tensor/tensor.exp (call $handle) (i32.const 64))
  (call $pass-on))
