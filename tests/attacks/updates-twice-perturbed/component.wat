;; Updates itself, and adds noise on top of noise until something stops it.
(import "tunebox:method/optimizer@0.2.0" "perturb" (func $perturb (param i32 i32 i32 f32 i32)))
(data (i32.const 256) "noise")
(func $step (param i32) (result i32)
  (loop $more
    (call $perturb (i32.const 256) (i32.const 5) (i32.const 7) (f32.const 1) (i32.const 64))
    (br_if $more (i32.eqz (i32.load8_u (i32.const 64)))))
  (call $pass-on))
