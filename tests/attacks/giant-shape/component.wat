;; Asks for a shape whose number of elements wraps around to four.
(data (i32.const 256) "\04\00\00\00\01\00\ff\7f\01\00\01\80")
(func $step (param i32) (result i32)
  (call $tensor/ones (i32.const 256) (i32.const 1) (i32.const 5) (i32.const 64))
  (call $tensor/tensor.reshape (call $handle) (i32.const 256) (i32.const 3) (i32.const 64))
  (call $pass-on))
