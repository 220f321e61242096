;; Updates itself, and adds noise on top of noise until something stops it.
(data (i32.const 256) "noise")
(func $step (param i32) (result i32)
  (loop $more
    (call $optimizer/perturb (i32.const 256) (i32.const 5) (i32.const 7) (f32.const 1) (i32.const 64))
    (br_if $more (i32.eqz (i32.load8_u (i32.const 64)))))
  (call $pass-on))
