;; Gives a sampler texts to stop at until something stops it.
(import "tunebox:method/sample@0.2.0" "[constructor]sampler" (func $sampler (result i32)))
(import "tunebox:method/sample@0.2.0" "[method]sampler.stop" (func $stop (param i32 i32 i32 i32)))
(data (i32.const 256) "example")
(func $step (param i32) (result i32)
  (local $handle i32)
  (local.set $handle (call $sampler))
  (loop $more
    (call $stop (local.get $handle) (i32.const 256) (i32.const 7) (i32.const 64))
    (br_if $more (i32.eqz (i32.load8_u (i32.const 64)))))
  (call $pass-on))
