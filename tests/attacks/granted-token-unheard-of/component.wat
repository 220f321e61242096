;; Wants a token as text that the model does not have.
(data (i32.const 256) "\03\00\00\00\02\00\00\00")
(func $step (param i32) (result i32)
  (i32.store (i32.const 300) (i32.const -1))
  (call $text/decode (i32.const 300) (i32.const 1) (i32.const 64))
  (call $pass-on))
