;; Makes tensors of a mebibyte and never drops one.
(data (i32.const 256) "\00\00\04\00")
(func $step (param i32) (result i32)
  (loop $again
    (call $tensor/ones (i32.const 256) (i32.const 1) (i32.const 5) (i32.const 64))
    (br_if $again (i32.eqz (i32.load8_u (i32.const 64)))))
  (call $pass-on))
