;; Reads tensors back for ever, and says what it was told.
(data (i32.const 256) "\01\00\00\00")
(func $step (param i32) (result i32)
  (local $tensor i32)
  (call $tensor/ones (i32.const 256) (i32.const 1) (i32.const 5) (i32.const 64))
  (local.set $tensor (call $handle))
  (loop $again
    (call $tensor/tensor.item (local.get $tensor) (i32.const 64))
    (br_if $again (i32.eqz (i32.load8_u (i32.const 64)))))
  (call $pass-on))
