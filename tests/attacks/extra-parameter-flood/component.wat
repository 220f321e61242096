;; Makes extra parameters without end, which would stay for the whole run.
;; 256: a shape; 272: a name, whose last two letters change.
(data (i32.const 256) "\03\00\00\00")
(data (i32.const 272) "extra-aa")
(func $step (param i32) (result i32)
  (local $number i32) (local $count i32)
  (call $tensor/full (i32.const 256) (i32.const 1) (f32.const 1) (i32.const 64))
  (local.set $number (call $handle))
  (loop $more
    (i32.store8 (i32.const 278) (i32.add (i32.const 97) (i32.and (local.get $count) (i32.const 15))))
    (i32.store8 (i32.const 279) (i32.add (i32.const 97) (i32.shr_u (local.get $count) (i32.const 4))))
    (local.set $count (i32.add (local.get $count) (i32.const 1)))
    (call $optimizer/extra (i32.const 272) (i32.const 8) (local.get $number) (i32.const 64))
    (br_if $more (i32.eqz (i32.load8_u (i32.const 64)))))
  (call $pass-on))
