;; Reads tensors back for ever, and says what it was told.
(import "tunebox:method/tensor@0.2.0" "ones" (func $ones (param i32 i32 i32 i32)))
(import "tunebox:method/tensor@0.2.0" "[method]tensor.item" (func $item (param i32 i32)))
(data (i32.const 256) "\01\00\00\00")
(func $step (param i32) (result i32)
  (local $tensor i32)
  (call $ones (i32.const 256) (i32.const 1) (i32.const 5) (i32.const 64))
  (local.set $tensor (call $handle))
  (loop $again
    (call $item (local.get $tensor) (i32.const 64))
    (br_if $again (i32.eqz (i32.load8_u (i32.const 64)))))
  (call $pass-on))
