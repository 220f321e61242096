;; Asks for a shape whose number of elements wraps around to four.
(import "tunebox:method/tensor@0.2.0" "ones" (func $ones (param i32 i32 i32 i32)))
(import "tunebox:method/tensor@0.2.0" "[method]tensor.reshape" (func $reshape (param i32 i32 i32 i32)))
(data (i32.const 256) "\04\00\00\00\01\00\ff\7f\01\00\01\80")
(func $step (param i32) (result i32)
  (call $ones (i32.const 256) (i32.const 1) (i32.const 5) (i32.const 64))
  (call $reshape (call $handle) (i32.const 256) (i32.const 3) (i32.const 64))
  (call $pass-on))
