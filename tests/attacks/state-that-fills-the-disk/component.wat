;; Keeps the same mebibyte under ever new names: it takes no memory, and every checkpoint would save it once a name.
;; 256: a shape; 272: a name, whose last letter changes.
(data (i32.const 256) "\00\00\04\00")
(data (i32.const 272) "state-A")
(func $step (param i32) (result i32)
  (local $number i32) (local $parameter i32)
  (call $tensor/full (i32.const 256) (i32.const 1) (f32.const 1) (i32.const 64))
  (local.set $number (call $handle))
  (local.set $parameter (call $optimizer/all))
  (loop $more
    (i32.store8 (i32.const 278) (i32.add (i32.const 1) (i32.load8_u (i32.const 278))))
    (call $optimizer/parameter.set-state (local.get $parameter) (i32.const 272) (i32.const 7) (local.get $number) (i32.const 64))
    (br_if $more (i32.eqz (i32.load8_u (i32.const 64)))))
  (call $pass-on))
