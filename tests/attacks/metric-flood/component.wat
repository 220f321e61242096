;; Reports more values than a step may, and says what it was told.
(data (i32.const 256) "loss")
(func $step (param i32) (result i32)
  (loop $again
    (call $run/metric (i32.const 256) (i32.const 4) (f32.const 0.5) (i32.const 64))
    (br_if $again (i32.eqz (i32.load8_u (i32.const 64)))))
  (call $pass-on))
