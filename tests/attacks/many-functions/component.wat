;; Brings more functions than any method needs.
(component
  (core module $m
@50001    (func)
  ))
