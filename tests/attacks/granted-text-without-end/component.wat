;; Turns its whole memory into tokens, again and again.
(data (i32.const 256) "\03\00\00\00\02\00\00\00")
(func $step (param i32) (result i32)
  (loop $more
    (call $text/encode (i32.const 512) (i32.const 8000) (i32.const 64))
    (br_if $more (i32.eqz (i32.load8_u (i32.const 64)))))
  (call $pass-on))
